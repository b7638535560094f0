"""Where the shop answers."""

from django.urls import path
from orders import views

urlpatterns = [
    path("orders/<str:item>", views.create),
    path("orders/<int:number>/mail", views.mail),
    path("jobs", views.count),
]
